// What the browser remembers between two visits. Storage can be full or switched off: then it lasts as long as the page.

export function remembered(key, fallback = null) {
  try {
    return localStorage.getItem(key) ?? fallback;
  } catch {
    return fallback;
  }
}

// Null forgets.
export function remember(key, value) {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // nothing more to do
  }
}
