import { type Cursor, InvalidCursorException } from '@framework/core';
import { type Snapshot, formatSnapshot, parseSnapshot } from './snapshot.js';

/** A place in the log: within one epoch, and as it was learnt in one history of the database. */
export interface LogPlace {
  /** On which of the servers that the log was written on. */
  readonly epoch: number;
  /** Which transactions of the epoch lie before the place. */
  readonly snapshot: Snapshot;
  /** The run of the server in which the place was learnt; empty for the beginning of an epoch, which holds on every one. */
  readonly history: string;
}

/** An expression for a cursor, of columns `epoch` and `snapshot` and of the history in which it is read. */
export const cursorText = `concat_ws(' ', epoch, snapshot, eventlog.server_history())`;

/** The cursor at the beginning of an epoch. */
export function beginningOf(epoch: number): Cursor {
  return `${epoch} 1:1: `;
}

/**
 * Reads a cursor.
 *
 * @throws InvalidCursorException `invalid-cursor` when it is none
 */
export function parsePlace(cursor: Cursor): LogPlace {
  const [, epoch, snapshot, history] = /^(\d+) (\S+) (\S*)$/.exec(cursor) ?? [];
  if (epoch === undefined || snapshot === undefined || history === undefined) {
    throw new InvalidCursorException(cursor);
  }
  return { epoch: Number(epoch), snapshot: parseSnapshot(snapshot), history };
}

/** Writes a place as a cursor. */
export function formatPlace({ epoch, snapshot, history }: LogPlace): Cursor {
  return `${epoch} ${formatSnapshot(snapshot)} ${history}`;
}
