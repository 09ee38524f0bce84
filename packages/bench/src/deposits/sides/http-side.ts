import { Pool } from 'undici';
import { type DepositSide, amount } from '../deposit-side.js';
import type { DepositWorld } from '../deposit-world.js';

const headers = { 'content-type': 'application/json' } as const;
const body = JSON.stringify({ amount: amount.toFixed(2) });

/** Deposits by requests to a running service, over one kept connection for each client. */
export function httpSide(world: DepositWorld, serviceUrl: string, clientCount: number): DepositSide<'http'> {
  const pool = new Pool(serviceUrl, { connections: clientCount });
  return {
    name: 'http',
    world,
    deposit: async ({ id }) => {
      const path = `/wallets/${id.value}/deposit`;
      const answer = await pool.request({ method: 'POST', path, headers, body });
      const text = await answer.body.text();
      if (answer.statusCode !== 200) throw new Error(`${path} answered ${answer.statusCode}: ${text}`);
    },
    close: () => pool.close(),
  };
}
