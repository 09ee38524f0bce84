import type { DeliverableEvent, BlockedHead } from '@framework/core/adapter';

import type { HeldSlot } from '../slots/lease-keeper.js';

/** An event from the log, to be handled or, when its model is blocked, to be blocked. */
export interface EventWork {
  readonly kind: 'event';
  readonly event: DeliverableEvent;
  readonly slot: HeldSlot;
  /** Called once when it is done or blocked. */
  readonly onFinished: () => void;
}

/** A blocked event whose turn it is. */
export interface RetryWork {
  readonly kind: 'retry';
  readonly head: BlockedHead;
  readonly slot: HeldSlot;
  /** Not aborted while no other blocked event is tried; `undefined` when others are. */
  readonly alone: AbortSignal | undefined;
  /** Called once when the attempt has ended, however it did. */
  readonly onEnded: () => void;
}

/** The question whether a model still has blocked events, asked while nothing else happens to the model. */
interface CheckWork {
  readonly kind: 'check';
  readonly slot: HeldSlot;
  /** Any event of the model. */
  readonly event: DeliverableEvent;
}

/** What a handler's lanes hold. */
export type FlowWork = EventWork | RetryWork | CheckWork;

/** Names a model, where handler and database are given. */
export function modelKey({
  modelName,
  modelId,
}: {
  readonly modelName: string;
  readonly modelId: string;
}): string {
  return `${modelName} ${modelId}`;
}
