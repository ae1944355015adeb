// What the list of chats is made of, top to bottom: pinned chats, folders with theirs, the rest.

const PINNED = "pinned";
const REST = "rest";

const folderKey = (folder) => `folder ${folder}`;

// Returns rows {key, chat} and, where there is more than one part, heads {key, head, folder, count, folded} before them.
// `folded` is a set of the heads' keys.
export function rowsOf(chats, folded) {
  const parts = partsOf(chats);
  if (parts.length === 1 && parts[0].key === REST) return parts[0].chats.map(row);
  return parts.flatMap(({ key, head, folder, chats: inside }) => {
    const isFolded = folded.has(key);
    const headRow = { key, head, folder, count: inside.length, folded: isFolded };
    return [headRow, ...(isFolded ? [] : inside.map(row))];
  });
}

// The names of the folders, in order.
export function foldersOf(chats) {
  return [...new Set(chats.map((chat) => chat.folder).filter(Boolean))].sort((a, b) => a.localeCompare(b));
}

function row(chat) {
  return { key: `chat ${chat.id}`, chat };
}

function partsOf(chats) {
  const pinned = chats.filter((chat) => chat.pinned);
  const byFolder = new Map(foldersOf(chats).map((folder) => [folder, []]));
  const rest = [];
  for (const chat of chats) if (!chat.pinned) (byFolder.get(chat.folder) ?? rest).push(chat);
  const parts = [{ key: PINNED, head: "Pinned", folder: null, chats: pinned }];
  for (const [folder, inside] of byFolder) parts.push({ key: folderKey(folder), head: folder, folder, chats: inside });
  parts.push({ key: REST, head: "Chats", folder: "", chats: rest });
  return parts.filter((part) => part.chats.length > 0 || part.folder);
}
