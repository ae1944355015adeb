// Why a reply ended, in words.

export const ENDINGS = {
  stop: "finished",
  length: "reached its length limit",
  cancelled: "stopped by you",
  error: "ended by an error",
  time: "reached its time limit",
  loop: "stopped for going round in circles",
};
