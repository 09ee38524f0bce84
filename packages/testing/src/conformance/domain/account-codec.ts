import { shardedIdCodec, ShardedId } from '@framework/core';
import * as z from 'zod';
import { Account, type Json } from './account.js';

const instant = z.codec(z.iso.datetime(), z.date(), {
  decode: (text) => new Date(text),
  encode: (date) => date.toISOString(),
});

const fields = z.object({
  id: shardedIdCodec(Account),
  state: z.enum(['OPENED', 'DELETED']),
  version: z.int(),
  createdDate: instant,
  updatedDate: instant,
  owner: z.string(),
  balance: z.string(),
  quota: z.codec(z.string(), z.bigint(), {
    decode: (text) => BigInt(text),
    encode: (value) => String(value),
  }),
  score: z.number(),
  dueDate: instant,
  note: z.string().nullable(),
  settings: z.custom<Json>(),
});

/** The schema of an account as the result of an action. */
export const accountCodec: z.ZodType<Account> = z.codec(fields, z.instanceof(Account), {
  decode: (read) => new Account({ ...read, id: ShardedId.of(Account, read.id.value) }),
  encode: (account) => account,
});
