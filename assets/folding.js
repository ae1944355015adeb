// One spelling for what a person takes for the same text: the rule of `app/folding.py`.

export function folded(text) {
  const lowered = text.normalize("NFKC").replaceAll("ẞ", "ss").toUpperCase().toLowerCase().replaceAll("ς", "σ");
  return lowered.normalize("NFKC").replaceAll("i\u0307", "i"); // from İ
}
