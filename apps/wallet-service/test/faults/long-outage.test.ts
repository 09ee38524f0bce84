import { ShardUnavailableError, UnknownShardError } from '@framework/core';
import { Big } from 'big.js';
import { expect, test } from 'vitest';

import { InitiateTransferAction } from '../../src/transfer/initiate-transfer-action.js';
import { Transfer } from '../../src/transfer/transfer.js';
import { Wallet } from '../../src/wallet/wallet.js';
import { mexico, walletOf, walletSpecificationWhile } from '../wallet-specification.js';

const minuteMs = 60_000;
/** The longest time after the end of an outage until a waiting transfer is retried. */
const latenessMs = 5_000;
const amount = new Big('25.50');

test.each([
  ['away for six minutes', 6 * minuteMs, () => new ShardUnavailableError(mexico, 'it is away')],
  ['away for three hours', 180 * minuteMs, () => new ShardUnavailableError(mexico, 'it is away')],
  ['not configured for an hour', 60 * minuteMs, () => new UnknownShardError(mexico)],
])(
  'a transfer to a shard that is %s is received at most five seconds later',
  async (_what, lastsMs, errorOf) => {
    const [source, destination] = [walletOf('100'), walletOf('1', { shard: mexico })];
    const specification = walletSpecificationWhile((elapsedMs) => {
      if (elapsedMs < lastsMs) throw errorOf();
    });
    const environment = await specification.given(source, destination).environment();
    const startedMs = environment.clock.now().getTime();
    const params = { sourceId: source.id, destId: destination.id, amount };
    const { id } = await environment.execute(InitiateTransferAction, params);
    const { attempts, deadLetters } = await environment.deliverAll({ callsMax: 100_000 });
    expect(deadLetters).toEqual([]);
    expect(attempts.length).toBeGreaterThan(lastsMs / latenessMs);
    expect(await environment.repository(Transfer).getById(id)).toMatchObject({ state: 'COMPLETED' });
    expect(await environment.repository(Wallet).getById(source.id)).toMatchObject({
      balance: new Big('74.5'),
    });
    expect(await environment.repository(Wallet).getById(destination.id)).toMatchObject({
      balance: new Big('26.5'),
    });
    const tookMs = environment.clock.now().getTime() - startedMs;
    expect(tookMs).toBeGreaterThanOrEqual(lastsMs);
    expect(tookMs).toBeLessThanOrEqual(lastsMs + latenessMs + 2_000);
  },
);
