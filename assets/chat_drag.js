// Dragging a chat onto a folder, its head or any chat in it; onto the other chats takes it out of its folder.

const KIND = "application/x-ringside-chat";

// `chatOf(id)` returns a chat of the list; `file(chat, folder)` puts it into a folder, "" for none.
export function watchDrag(list, chatOf, file) {
  let over = null;
  const mark = (row) => {
    over?.classList.remove("drop-here");
    over = row;
    over?.classList.add("drop-here");
  };
  list.addEventListener("dragstart", (event) => {
    const row = event.target.closest("[data-id]");
    event.dataTransfer.setData(KIND, row.dataset.id);
    event.dataTransfer.effectAllowed = "move";
  });
  list.addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes(KIND)) return;
    const row = folderRow(event);
    mark(row);
    if (row) event.preventDefault();
  });
  list.addEventListener("dragleave", (event) => !list.contains(event.relatedTarget) && mark(null));
  list.addEventListener("dragend", () => mark(null));
  list.addEventListener("drop", (event) => {
    const row = folderRow(event);
    const chat = chatOf(Number(event.dataTransfer.getData(KIND)));
    mark(null);
    if (!row || !chat) return;
    event.preventDefault();
    file(chat, row.dataset.folder);
  });

  // Where nothing is pinned nor in a folder there is no other place to drop a chat on.
  function folderRow(event) {
    const row = event.target.closest("li");
    return row?.dataset.folder !== undefined && list.querySelector(".chat-head") ? row : null;
  }
}
