import { readFile } from 'node:fs/promises';
import { ShardedId, parseFrameworkConfig } from '@framework/core';
import { openService } from '@framework/service';
import { serve } from '@hono/node-server';
import { Big } from 'big.js';
import { Hono } from 'hono';
import * as z from 'zod';
import { Wallet, WalletDepositMoneyAction, walletService } from 'wallet-service';
import { principal } from '../load/bench-wallets.js';

// Deposits by a route of Hono that validates with zod, and nothing besides: no tokens, keys, ids, problems, limits or log.

const config = parseFrameworkConfig(JSON.parse(await readFile(process.env['WALLET_CONFIG'] ?? '', 'utf8')));
const { databases, executor } = openService(walletService, config, { delivers: false });
await databases.ready();
const body = z.strictObject({ amount: z.string().transform((text) => new Big(text)) });
const params = z.object({ id: z.uuid() });
const app = new Hono();
app.post('/wallets/:id/deposit', async (context) => {
  const { amount } = body.parse(await context.req.json());
  const walletId = ShardedId.of(Wallet, params.parse(context.req.param()).id);
  const { id, ownerId, currency, balance, state, version } = await executor.execute(
    principal,
    WalletDepositMoneyAction,
    { walletId, amount },
  );
  return context.json({ id: id.value, ownerId, currency, balance: balance.toFixed(), state, version });
});
const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) =>
  process.stdout.write(`http://127.0.0.1:${port} is ready.\n`),
);
process.on('SIGTERM', () => server.close(() => process.exit()));
