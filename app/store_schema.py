"""The schema of the store, one script a version; a released one is never changed, only followed by another."""

_PASSAGE_WORDS = """
    CREATE VIRTUAL TABLE passage_words USING fts5(text, tokenize = 'unicode61 remove_diacritics 2');
    CREATE TRIGGER passage_removed AFTER DELETE ON passages BEGIN
        DELETE FROM passage_words WHERE rowid = old.id;
    END;
"""

FORGET_INDEX = f"""
    DROP TRIGGER passage_removed;
    DROP TABLE passage_words;
    {_PASSAGE_WORDS}
    DELETE FROM passages;
    INSERT OR IGNORE INTO unindexed SELECT id FROM messages;
"""
"""For a damaged search index: everything is to be indexed anew, which only takes time."""

_WITH_ORIGINALS = FORGET_INDEX + "ALTER TABLE passages ADD COLUMN original TEXT"

MIGRATIONS = (
    """
    CREATE TABLE chats (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        title TEXT NOT NULL,
        settings TEXT NOT NULL DEFAULT '',
        pinned INTEGER NOT NULL DEFAULT 0,
        created_at_s REAL NOT NULL,
        updated_at_s REAL NOT NULL
    );
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        chat_id INTEGER NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
        text TEXT NOT NULL,
        token_ids BLOB NOT NULL DEFAULT x'',
        status TEXT NOT NULL,
        finish_reason TEXT NOT NULL DEFAULT '',
        error TEXT NOT NULL DEFAULT '',
        seed TEXT,
        model_name TEXT NOT NULL DEFAULT '',
        backend TEXT NOT NULL DEFAULT '',
        created_at_s REAL NOT NULL,
        set_aside INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX messages_of_chat ON messages (chat_id, id);
    CREATE INDEX messages_unfinished ON messages (status) WHERE status IN ('queued', 'running');
    CREATE TABLE journal (
        id INTEGER PRIMARY KEY,
        message_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
        text TEXT NOT NULL,
        token_ids BLOB NOT NULL
    );
    CREATE INDEX journal_of_message ON journal (message_id, id);
    CREATE TABLE reply_metrics (
        message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
        packed BLOB NOT NULL
    );
    CREATE TABLE kept (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    """,
    f"""
    ALTER TABLE chats ADD COLUMN folder TEXT NOT NULL DEFAULT '';
    CREATE TABLE passages (
        id INTEGER PRIMARY KEY,
        message_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
        start INTEGER NOT NULL
    );
    CREATE INDEX passages_of_message ON passages (message_id, start);
    {_PASSAGE_WORDS}
    CREATE TABLE unindexed (message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE);
    INSERT INTO unindexed SELECT id FROM messages;
    CREATE TRIGGER message_added AFTER INSERT ON messages BEGIN
        INSERT OR IGNORE INTO unindexed VALUES (new.id);
    END;
    CREATE TRIGGER message_changed AFTER UPDATE OF text ON messages WHEN new.text <> old.text BEGIN
        DELETE FROM passages WHERE message_id = new.id
            AND substr(new.text, 1, length(old.text)) <> old.text;
        INSERT OR IGNORE INTO unindexed VALUES (new.id);
    END;
    """,
    """
    ALTER TABLE messages ADD COLUMN parent_id INTEGER;
    ALTER TABLE messages ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE messages ADD COLUMN layout TEXT NOT NULL DEFAULT '';
    ALTER TABLE chats ADD COLUMN kind TEXT NOT NULL DEFAULT 'chat';
    ALTER TABLE chats ADD COLUMN leaf_id INTEGER;
    ALTER TABLE journal ADD COLUMN start_chars INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE journal ADD COLUMN note TEXT NOT NULL DEFAULT '';
    UPDATE messages SET parent_id = (
        SELECT max(earlier.id) FROM messages AS earlier
        WHERE earlier.chat_id = messages.chat_id AND earlier.id < messages.id
            AND CASE messages.role WHEN 'assistant' THEN earlier.role = 'user' ELSE earlier.set_aside = 0 END
    );
    UPDATE chats SET leaf_id = (SELECT max(id) FROM messages WHERE chat_id = chats.id AND set_aside = 0);
    UPDATE messages SET set_aside = 0;
    CREATE INDEX journal_by_offset ON journal (message_id, start_chars);
    CREATE TABLE text_behind (
        message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
        text TEXT NOT NULL,
        token_ids BLOB NOT NULL,
        layout TEXT NOT NULL
    );
    CREATE TABLE steps (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        chat_id INTEGER NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
        kind TEXT NOT NULL,
        leaf_id INTEGER,
        message_id INTEGER,
        text TEXT,
        token_ids BLOB,
        layout TEXT
    );
    CREATE INDEX steps_of_chat ON steps (chat_id, id);
    """,
    "ALTER TABLE messages ADD COLUMN opening TEXT NOT NULL DEFAULT ''",
    _WITH_ORIGINALS,
)
"""Seeds are text because SQLite's integers end at 2**63 - 1. What is searched are passages, see `app.search_index`: a
message that grew is indexed from its last passage on, one that was changed otherwise from its start.

Since version 3 the messages of a chat are a tree. Before, a reply or question that was replaced was set aside: it
becomes a variant beside its successor. `set_aside` now holds the step (`app.chat_tree`) that deleted a message, 0 for
none. There is no foreign key on parents: SQLite follows such chains recursively, and chats are longer than it can
go.

Since version 5 passages are indexed in one spelling (`app.folding`) and kept as they are written where that differs."""
