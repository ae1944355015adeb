// Axes of bytes: round numbers with a unit, in the style of every other number of bytes. Plotly itself writes "450MB".

import { BYTE_UNITS } from "./format.js";

// Powers of ten on a logarithmic axis, with units.
export function bytesTicks() {
  const tickvals = Array.from({ length: 11 }, (_, at) => 10 ** (at + 3));
  return { tickvals, ticktext: tickvals.map(axisBytes) };
}

// Some four round numbers from `low` to `high` on a linear axis, with units.
export function linearBytesTicks(low, high) {
  const rough = (high - low) / 4;
  if (!(rough > 0)) return {};
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
  const tickvals = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step; value += step) tickvals.push(value);
  return { tickvals, ticktext: tickvals.map(axisBytes) };
}

// As it stands on an axis: "0", "450 MB", "1.5 GB".
function axisBytes(value) {
  if (value === 0) return "0";
  const unit = Math.floor(Math.log10(value) / 3 + 1e-9);
  return `${Number((value / 1000 ** unit).toPrecision(6))} ${BYTE_UNITS[unit]}`;
}
