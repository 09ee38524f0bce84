import dns from 'node:dns';
import type { LookupFunction } from 'node:net';

type Answer = Parameters<Parameters<LookupFunction>[2]>;

/** Who waits for the lookups that are under way, by what these ask. */
const waiting = new Map<string, ((...answer: Answer) => void)[]>();

/**
 * Looks a name up as Node does, but never twice at once: whoever asks meanwhile gets the same answer.
 *
 * A lookup occupies one of the four threads that Node has for it until the name server answers, however long ago its asker gave
 * up. A name server that is silent would get all of them, and other names could not be looked up any more.
 */
export const sharedLookup: LookupFunction = (hostname, options, callback) => {
  const question = JSON.stringify([hostname, options]);
  const others = waiting.get(question);
  if (others !== undefined) {
    others.push(callback);
    return;
  }
  const askers = [callback];
  waiting.set(question, askers);
  dns.lookup(hostname, options, (...answer: Answer) => {
    waiting.delete(question);
    for (const asker of askers) asker(...answer);
  });
};
