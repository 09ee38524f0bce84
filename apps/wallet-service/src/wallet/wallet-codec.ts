import { ShardedId, shardedIdCodec } from '@framework/core';
import * as z from 'zod';
import { decimal } from './decimal.js';
import { instant } from './instant.js';
import { Wallet } from './wallet.js';

const fields = z.object({
  id: shardedIdCodec(Wallet),
  state: z.enum(['OPENED', 'CLOSED']),
  version: z.int(),
  createdDate: instant,
  updatedDate: instant,
  ownerId: z.string(),
  currency: z.string(),
  balance: decimal,
});

/** The schema of a wallet as the result of an action: what a repeat under an idempotency key is answered with. */
export const walletCodec: z.ZodType<Wallet> = z.codec(fields, z.instanceof(Wallet), {
  decode: (read) => new Wallet({ ...read, id: ShardedId.of(Wallet, read.id.value) }),
  encode: (wallet) => wallet,
});
