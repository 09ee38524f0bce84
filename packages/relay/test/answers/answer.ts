import { errorText } from '@framework/events';

import type { Broker, BrokerMessage } from '../../src/index.js';

const forever = new AbortController().signal;

/** What becomes of a message: the kind of its outcome with the reason, or `again` with the error of the call and its causes. */
export async function answerTo(broker: Broker, message: BrokerMessage): Promise<string> {
  try {
    const [outcome] = await broker.publish([message], forever);
    if (outcome === undefined) return 'nothing';
    return 'reason' in outcome ? `${outcome.kind}: ${outcome.reason}` : outcome.kind;
  } catch (error) {
    return `again: ${errorText(error)}`;
  }
}
