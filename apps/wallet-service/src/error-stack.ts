const causesMax = 8;

/**
 * The stacks of an error and of its causes, for the log.
 *
 * Only stacks: the other fields of a database's errors can hold the values of a row.
 */
export function errorStack(error: unknown): string {
  return causesOf(error)
    .map(({ stack, message }) => stack ?? message)
    .join('\ncaused by: ');
}

/** What an error and its causes say, in one line. */
export function errorReason(error: unknown): string {
  return causesOf(error)
    .map(({ message, name }) => message || name)
    .join(': ');
}

function causesOf(error: unknown): readonly Error[] {
  const chain: Error[] = [];
  for (let link = error; link instanceof Error && chain.length < causesMax; link = link.cause)
    chain.push(link);
  return chain.length === 0 ? [new Error(String(error))] : chain;
}
