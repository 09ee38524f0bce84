import { UnstorableValueError, checkText, exactJson } from '@framework/core/adapter';

import { type ValueType, shown, textual } from './value-type.js';

/** Any text that the database can store. */
export const textType: ValueType = textual(
  { cast: 'text', order: 'text' },
  (text, path) => {
    checkText(text, path);
    return true;
  },
  'a string',
);

/** Texts with a maximum length, or with exactly that length, because the database fills shorter ones with spaces. */
export function limitedTextType(cast: 'varchar' | 'bpchar', length: number | undefined): ValueType {
  return {
    cast,
    ...(cast === 'varchar' && { order: 'text' }),
    read: textType.read,
    write: (value, path) => {
      const text = textType.write(value, path);
      const count = Array.from(String(text)).length;
      if (length === undefined || count === length || (cast === 'varchar' && count < length)) return text;
      const wanted = `${cast === 'varchar' ? 'at most' : 'exactly'} ${length}`;
      throw new UnstorableValueError(path, `its length is ${count}, but the column takes ${wanted}`);
    },
  };
}

/** Only the values that the table lists, of a type of texts. */
export function listedType(type: ValueType, values: readonly string[]): ValueType {
  return {
    ...type,
    write: (value, path) => {
      if (typeof value === 'string' && values.includes(value)) return type.write(value, path);
      throw new UnstorableValueError(path, `'${shown(value)}' is not one of ${values.join(', ')}`);
    },
  };
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

export const uuidType: ValueType = textual(
  { cast: 'uuid', order: 'text' },
  (text) => uuid.test(text),
  'a UUID in lower case with dashes',
);

export const booleanType: ValueType = {
  cast: 'boolean',
  order: 'text',
  write: (value, path) => {
    if (typeof value === 'boolean') return value;
    throw new UnstorableValueError(path, 'it is not a boolean');
  },
  read: (sent) => sent === true || sent === 'true' || sent === 't',
};

/** JSON, or a document of `jsonb`, which has lost its layout and keeps the digits of its numbers. */
export function jsonType(cast: 'json' | 'jsonb'): ValueType {
  return {
    cast,
    // Its numbers may have more digits than a JavaScript number, or end with zeros, and it may be JSON's own null.
    inexact: cast === 'json' ? /(?:)/ : /[\d.]{16}|\.\d*0(?!\d)|^null$/,
    write: (value, path) => exactJson(value, path),
    read: (sent) => JSON.parse(sent as string) as unknown,
  };
}

/** How a column converts its values into bytes, and back. */
interface ByteMapping {
  mapToDriverValue(value: unknown): unknown;
  mapFromDriverValue(sent: unknown): unknown;
}

/** Bytes, which are sent as hexadecimal digits. */
export function bytesType(column: ByteMapping): ValueType {
  return {
    cast: 'bytea',
    write: (value, path) => {
      const bytes = column.mapToDriverValue(value);
      if (bytes instanceof Uint8Array) return `\\x${Buffer.from(bytes).toString('hex')}`;
      throw new UnstorableValueError(path, 'it is not an array of bytes');
    },
    read: (sent) => column.mapFromDriverValue(Buffer.from(String(sent).slice(2), 'hex')),
  };
}
