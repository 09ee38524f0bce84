import { type AnyEventHandler, EventHandlerRegistry } from '@framework/events';
import { expect, test } from 'vitest';

import { NotifyRecipientOnDeposit } from '../src/notification/notify-recipient.js';
import { ReceiveTransfer, RefundTransfer, SettleTransfer } from '../src/transfer/transfer-saga.js';

test('every handler of the service is marked for discovery, with its permanent name', () => {
  const { handlers } = EventHandlerRegistry.discover(
    (handler) => new (handler as unknown as new () => AnyEventHandler)(),
  );
  const found = handlers.map(({ handler, name }) => [handler.constructor, name]);
  expect(new Map(found as [unknown, string][])).toEqual(
    new Map<unknown, string>([
      [ReceiveTransfer, 'receive-transfer'],
      [SettleTransfer, 'settle-transfer'],
      [RefundTransfer, 'refund-transfer'],
      [NotifyRecipientOnDeposit, 'notify-recipient-on-deposit'],
    ]),
  );
});
