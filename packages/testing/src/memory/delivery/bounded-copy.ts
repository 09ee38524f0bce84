import type { DeliverableEvent } from '@framework/core';

/** A copy of an event, without payload and params when it is larger than so many bytes. */
export function boundedCopy(event: DeliverableEvent, bytesMax: number): DeliverableEvent {
  const bytes = Buffer.byteLength(JSON.stringify(event));
  const copy = structuredClone(event);
  if (bytes <= bytesMax) return { ...copy, bytes };
  return { ...copy, bytes, omitted: true, payload: undefined, actionParams: undefined };
}
