const headerBytes = 20;
const textOid = 25;
/** UTF-8 takes at most three bytes for each unit of a JavaScript string. */
const bytesPerUnit = 3;
/** How much memory is kept for the next arrays. */
const scratchMax = 1024 * 1024;

/** Where arrays are written before their size is known; grows to the largest one. */
let scratch: Buffer = Buffer.allocUnsafe(64 * 1024);

/**
 * Writes texts as one parameter of type `text[]`, in PostgreSQL's binary form: nothing in them has to be escaped.
 *
 * @param texts at least one; `null` is SQL's
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/adt/arrayfuncs.c array_recv
 */
export function textArray(texts: readonly (string | null)[]): Buffer {
  const bytes = scratchFor(texts);
  let end = headerBytes;
  let hasNull = 0;
  for (const text of texts) {
    if (text === null) {
      hasNull = 1;
      end = bytes.writeInt32BE(-1, end);
    } else {
      const length = bytes.write(text, end + 4, 'utf8');
      bytes.writeInt32BE(length, end);
      end += 4 + length;
    }
  }
  const dimensions = 1;
  const lowerBound = 1;
  [dimensions, hasNull, textOid, texts.length, lowerBound].forEach((field, index) =>
    bytes.writeInt32BE(field, index * 4),
  );
  return Buffer.from(bytes.subarray(0, end));
}

function scratchFor(texts: readonly (string | null)[]): Buffer {
  let size = headerBytes;
  for (const text of texts) size += 4 + (text === null ? 0 : text.length * bytesPerUnit);
  if (size <= scratchMax && size > scratch.length) scratch = Buffer.allocUnsafe(size);
  return size <= scratch.length ? scratch : Buffer.allocUnsafe(size);
}
