const causesMax = 8;
/** Of a longer text, so many characters of its beginning, where a stack says what happened, and of its end, where it says where. */
const beginningMax = 1_000;
const endMax = 3_000;

/**
 * The stacks of an error and of its causes, for the log: at most eight, and of each about 4,000 characters at most.
 *
 * Only stacks: the other fields of a database's errors can hold the values of a row.
 */
export function errorStack(error: unknown): string {
  return causesOf(error)
    .map(({ stack, message }) => bounded(stack ?? message))
    .join('\ncaused by: ');
}

/** What an error and its causes say, bounded as their stacks are; a cause that is quoted already is not repeated. */
export function errorReason(error: unknown): string {
  return causesOf(error)
    .map(({ message, name }) => bounded(message || name))
    .reduce((said, text) => (said.includes(text) ? said : `${said}: ${text}`));
}

function causesOf(error: unknown): readonly Error[] {
  const chain: Error[] = [];
  for (let link = error; link instanceof Error && chain.length < causesMax; link = link.cause)
    chain.push(link);
  return chain.length === 0 ? [new Error(String(error))] : chain;
}

function bounded(text: string): string {
  if (text.length <= beginningMax + endMax) return text;
  return `${text.slice(0, beginningMax)} … ${text.slice(-endMax)}`.toWellFormed();
}
