// Rows of tables and lists, kept in step with data: what is still there stays the same
// element, so that the focus isn't lost.

// step puts rows into a parent: one for each item, made once, filled each time.
export function step(parent, items, keyOf, makeRow, fillRow) {
  const old = new Map();
  for (const row of parent.children) {
    old.set(row.dataset.row, row);
  }
  const wanted = new Set(items.map(keyOf));
  for (const [key, row] of old) {
    if (!wanted.has(key)) {
      row.remove();
    }
  }
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let row = old.get(key);
    if (!row) {
      row = makeRow(item);
      row.dataset.row = key;
    }
    fillRow(row, item);
    if (row === next) {
      next = next.nextElementSibling;
    } else {
      parent.insertBefore(row, next);
    }
  }
}
