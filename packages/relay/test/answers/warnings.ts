import { onTestFinished } from 'vitest';

/** Collects the warnings of relays from now on; each call returns those that were printed so far. */
export function warningsOf(): () => Promise<readonly string[]> {
  const printed: string[] = [];
  const keep = ({ name, message }: Error): void => {
    if (name === 'RelayWarning') printed.push(message);
  };
  process.on('warning', keep);
  onTestFinished(() => void process.off('warning', keep));
  return async () => {
    // Node emits them in the next turn.
    await new Promise(setImmediate);
    return printed;
  };
}
