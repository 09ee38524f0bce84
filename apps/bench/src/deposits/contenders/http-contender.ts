import { type Dispatcher, Pool } from 'undici';
import { type DepositContender, amount } from '../deposit-contender.js';
import type { DepositEnvironment } from '../deposit-environment.js';

const contentHeaders = { 'content-type': 'application/json' } as const;
const body = JSON.stringify({ amount: amount.toFixed(2) });

/** Deposits with requests to a running service, over one persistent connection for each client. */
export function httpContender<Name extends string>(
  name: Name,
  environment: DepositEnvironment,
  { url }: { readonly url: string },
  clientCount: number,
): DepositContender<Name> {
  const pool = new Pool(url, { connections: clientCount });
  return {
    name,
    environment,
    deposit: ({ id, token }) =>
      deposit(pool, `/wallets/${id.value}/deposit`, {
        ...contentHeaders,
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
      }),
    close: () => pool.close(),
  };
}

/** Reads the whole answer, but not as a stream: the client's processor time is not what is measured. */
function deposit(pool: Pool, path: string, headers: Readonly<Record<string, string>>): Promise<void> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let statusCode = 0;
    const handler: Dispatcher.DispatchHandler = {
      onRequestStart: () => undefined,
      onResponseStart: (_controller, status) => void (statusCode = status),
      onResponseData: (_controller, chunk) => void chunks.push(chunk),
      onResponseEnd: () => {
        if (statusCode === 200) resolve();
        else reject(new Error(`${path} answered ${statusCode}: ${Buffer.concat(chunks).toString()}`));
      },
      onResponseError: (_controller, error) => reject(error),
    };
    pool.dispatch({ method: 'POST', path, headers, body }, handler);
  });
}
