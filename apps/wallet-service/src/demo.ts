import type { EventEnvelope, EventHandler, EventHandlerOptions } from '@framework/events';
import type { Demonstration } from '@framework/service';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';

import { WalletMoneyDepositedEvent } from './wallet/wallet.js';

/** The mean time between two requests, in milliseconds. */
const pauseMs = 300;
const walletsPerCountry = 20;
/** The mail server of the demonstration is away for the first seconds of every third minute. */
const outageSeconds = 10;
const outageEveryMinutes = 3;
const fullMailbox = 'full@mail.example';
const owner = '7c9e6679-7425-40de-944b-e07fc1f90ae7';
const made = z.object({ id: z.string() });
const asked = z.object({ recipient: z.string().optional() });

/**
 * Sends receipts for deposits to a mail server that does not exist. It fails while that server is away, so that a replay helps; and always
 * for one recipient, whose events can only be skipped.
 */
class SendReceipt implements EventHandler<WalletMoneyDepositedEvent> {
  static readonly handlerName = 'demo-send-receipt';
  static readonly options: EventHandlerOptions = { startFrom: 'beginning' };
  readonly event = WalletMoneyDepositedEvent;

  async handle({ actionParams }: EventEnvelope<WalletMoneyDepositedEvent>): Promise<void> {
    const { recipient } = asked.parse(actionParams);
    if (recipient === fullMailbox) throw new Error(`The mailbox ${fullMailbox} is full`);
    const now = new Date();
    const isAway = now.getMinutes() % outageEveryMinutes === 0 && now.getSeconds() < outageSeconds;
    if (recipient !== undefined && isAway) throw new Error('The mail server does not answer');
  }
}

/** Lets a service live, so that operators have something to look at: deposits, transfers between shards, and a handler that fails at times. */
export const demo: Demonstration = {
  folder: fileURLToPath(new URL('../../../.data/demo', import.meta.url)),
  handlers: [new SendReceipt()],
  // Few attempts in short succession, so that dead letters are seen soon.
  delivery: { retry: { attemptsMax: 3, backoffBaseMs: 500 } },
  run: async ({ url, signal }) => {
    const wallets: string[] = [];
    for (let number = 0; number < walletsPerCountry; number++)
      for (const country of ['US', 'MX']) {
        const wallet = { country, ownerId: owner, currency: 'USD', initialBalance: '1000.00' };
        const { id } = made.parse(await post(`${url}/wallets`, wallet, signal));
        wallets.push(id);
      }
    while (!signal.aborted) {
      const [sourceId, destId] = [anyOf(wallets), anyOf(wallets)];
      const amount = (Math.random() * 50 + 0.01).toFixed(2);
      if (sourceId !== destId && Math.random() < 0.5)
        await post(`${url}/transfers`, { sourceId, destId, amount }, signal);
      else {
        const recipient = sourceId === wallets[0] ? fullMailbox : `owner-of-${sourceId}@mail.example`;
        await post(`${url}/wallets/${sourceId}/deposit`, { amount, recipient }, signal);
      }
      await delay(pauseMs * (0.5 + Math.random()), undefined, { signal });
    }
  },
};

/** A wallet may have too little money for a transfer: that is part of its life. */
async function post(url: string, body: object, signal: AbortSignal): Promise<unknown> {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body), signal });
  const answer: unknown = await response.json();
  if (response.ok || response.status === 422 || response.status >= 500) return answer;
  throw new Error(`${url} answered with ${response.status}: ${JSON.stringify(answer)}`);
}

function anyOf(wallets: readonly string[]): string {
  return wallets[Math.floor(Math.random() * wallets.length)] ?? '';
}
