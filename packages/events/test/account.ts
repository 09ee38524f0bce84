import type { DeliverableEvent } from '@framework/core/adapter';
import { ModelEvent } from '@framework/core';
import * as z from 'zod';

/** The model of the tests; only its name matters to delivery. */
export class Account {
  readonly id: string = '';
}

export class DepositedEvent extends ModelEvent<Account> {
  static readonly payload = z.object({ amount: z.number() });

  constructor(
    accountId: string,
    readonly amount: number,
  ) {
    super(accountId, Account);
  }
}

export class ClosedEvent extends ModelEvent<Account> {
  static readonly payload = z.object({ reason: z.string() });

  constructor(
    accountId: string,
    readonly reason: string,
  ) {
    super(accountId, Account);
  }
}

/** The n-th event of an account, as it is in the log; accounts `a`, `b`, … are in slots 0, 1, … of four. */
export function deposited(
  modelId: string,
  modelVersion: number,
  fields: Partial<DeliverableEvent> = {},
): DeliverableEvent {
  return {
    id: `${modelId}${modelVersion}`,
    slot: (modelId.charCodeAt(0) - 97) % 4,
    namespace: 'com.example',
    actionId: `action-${modelId}${modelVersion}`,
    actionName: 'DepositAction',
    actionParams: { amount: modelVersion },
    principal: 'alice',
    ordinal: 0,
    modelId,
    modelName: 'Account',
    modelVersion,
    type: 'DepositedEvent',
    payload: { amount: modelVersion },
    headers: { 'correlation-id': 'c-1' },
    startedDate: new Date('2026-01-01T00:00:00Z'),
    createdDate: new Date('2026-01-01T00:00:00Z'),
    ...fields,
  };
}
