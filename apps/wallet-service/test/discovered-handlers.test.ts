import { type AnyEventHandler, EventHandlerRegistry } from '@framework/events';
import { expect, test } from 'vitest';

import { NotifyRecipientOnDeposit } from '../src/notification/notify-recipient.js';
import { ReceiveTransfer, RefundTransfer, SettleTransfer } from '../src/transfer/transfer-saga.js';

test('every handler of the service is marked for discovery', () => {
  const found = new Set<unknown>();
  EventHandlerRegistry.discover((handler) => {
    found.add(handler);
    return placeholder(`handler ${found.size}`);
  });
  const own = [ReceiveTransfer, SettleTransfer, RefundTransfer, NotifyRecipientOnDeposit];
  expect(own.filter((handler) => !found.has(handler))).toEqual([]);
});

test('the handlers of the service keep their permanent names', () => {
  const handlers = [
    new ReceiveTransfer(),
    new SettleTransfer(),
    new RefundTransfer(),
    new NotifyRecipientOnDeposit(),
  ];
  const names = new EventHandlerRegistry(handlers).handlers.map(({ name }) => name);
  expect(names).toEqual([
    'receive-transfer',
    'settle-transfer',
    'refund-transfer',
    'notify-recipient-on-deposit',
  ]);
});

/** Replaces a discovered handler, because the constructors of those in other tests may take arguments. */
function placeholder(name: string): AnyEventHandler {
  return new (class {
    static readonly handlerName = name;
    readonly event = 'all';

    async handle(): Promise<void> {}
  })();
}
