import type { CommitOutcomeUnknownException } from '@framework/core';
import type { ServerSession } from './server-session.js';

/** By what the outcome of a commit is found. */
export interface SentCommit {
  /** The process that ran it; `undefined` when something between client and server hides it. */
  readonly server: ServerSession | undefined;
  /** One of its rows in the log; the action's id would also find those on another shard of the database. */
  readonly eventId: string | undefined;
}

/** What is known of a commit whose answer was lost. */
export function sentCommitOf({ session }: CommitOutcomeUnknownException): SentCommit {
  return (session as SentCommit | undefined) ?? { server: undefined, eventId: undefined };
}

/** One row of the log for each of these commits; `undefined` when any row of the action stands for one of them. */
export function sentEventIds(
  unknownCommits: readonly CommitOutcomeUnknownException[],
): readonly string[] | undefined {
  const ids = unknownCommits.map((unknown) => sentCommitOf(unknown).eventId);
  return ids.every((id) => id !== undefined) ? ids : undefined;
}
