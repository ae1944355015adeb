// What a key that was pressed means.

// Enter, unless it ends the composition of a word: that one is meant for the input method. Safari tells of the end of the
// composition before the key, which then has the code 229.
export const isEnter = (event) => event.key === "Enter" && !isComposing(event);

export const isComposing = (event) => event.isComposing || event.keyCode === 229;
