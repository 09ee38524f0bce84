/** How a process ends. docs/operations/command-line.md has the same table. */
export const exitCode = {
  /** Everything was done, and nothing is wrong. */
  fine: 0,
  /** The command failed, or could not look at all databases. */
  failed: 1,
  /** The command, its arguments or its environment were wrong; nothing was done. */
  usage: 2,
  /** The command did its work, and found something. */
  found: 3,
} as const;

/** How a process ends. */
export type ExitCode = (typeof exitCode)[keyof typeof exitCode];

/** A mistake of the person who wrote the command. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}
