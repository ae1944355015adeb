// What a reply waits for and why it ended, in words.

export const ENDINGS = {
  stop: "finished",
  length: "reached its length limit",
  cancelled: "stopped by you",
  error: "ended by an error",
  time: "reached its time limit",
  loop: "stopped for going round in circles",
};

// `position` is its place in the line, from 1.
export function waitingWords(position) {
  return position === 1 ? "Waiting: next in line" : `Waiting: ${position - 1} before it`;
}
