import { UnstorableValueError } from '@framework/core/adapter';
import type { ValueKind } from '@framework/core/adapter';

/** How the values of one type of column are written, read, and compared. */
export interface ValueType {
  /** The type to which its texts are cast when many rows are sent as arrays of texts; the column adds length and scale. */
  readonly cast: string;
  /**
   * Converts a value into what is sent to the database, in the form in which the database returns it.
   *
   * @throws UnstorableValueError `unstorable-value` when the value would not be read back unchanged
   */
  readonly write: (value: unknown, path: string) => Sent;
  /**
   * Converts the database's text, or what was sent, into a value.
   *
   * @throws Error when a model cannot hold it; the message says why
   */
  readonly read: (sent: unknown) => unknown;
  /** How this process compares the database's texts, in the order of the database; `undefined` if pages have no such order. */
  readonly order?: ValueKind;
  /** Matches the database's texts that may say more than the value that they are read as. */
  readonly inexact?: RegExp;
}

/** A value in the form in which it is sent. */
export type Sent = string | number | boolean;

/** A type whose texts are its values. */
export function textual(
  type: Omit<ValueType, 'write' | 'read'>,
  isExact: (text: string, path: string) => boolean,
  example: string,
): ValueType {
  return {
    ...type,
    write: (value, path) => {
      if (typeof value === 'string' && isExact(value, path)) return value;
      throw new UnstorableValueError(path, `'${shown(value)}' is not ${example}`);
    },
    read: (sent) => sent,
  };
}

/** The beginning of a value, for a message. */
export function shown(value: unknown): string {
  return String(value).slice(0, 80);
}
