import { Big } from 'big.js';
import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { moneyByCurrency } from '../money-in-all.js';
import { type RawAnswer, RawConnection } from '../raw-connection.js';
import { seed } from '../seed.js';
import { type TestService, startTestService, stopTestService } from '../start-test-service.js';
import { anOwner } from '../wallet-client.js';
import { DocumentedAnswers } from './documented-answers.js';
import { type GeneratedRequest, type Subjects, requestArbitrary, requestText } from './request-arbitrary.js';

/** How many connections; a longer run uses more. */
const connectionCount = Number(process.env['TEST_CONNECTIONS'] ?? 60);
/** How long an answer may take. */
const answerTimeMs = 500;
const testTimeoutMs = 20_000 + connectionCount * (200 + answerTimeMs);

let service: TestService;
let subjects: Subjects;
/** The money that must be in all wallets and in transit between them. */
const money: Record<string, Big> = {};
const counts: Record<string, number> = {};

beforeAll(async () => {
  service = await startTestService();
  const { client } = service;
  const walletIds: string[] = [];
  for (const fields of [{}, { country: 'MX' }, { currency: 'MXN' }, { country: 'MX', currency: 'JPY' }, {}]) {
    const { id, currency, balance } = await client.openWallet({ initialBalance: '1000000', ...fields });
    walletIds.push(id);
    add(currency, new Big(balance));
  }
  const transfer = { sourceId: walletIds[0], destId: walletIds[1], amount: '1' };
  const { body } = await client.post('/transfers', transfer);
  const documented = new DocumentedAnswers(await (await fetch(`${service.url}/openapi.json`)).text());
  subjects = {
    documented,
    walletIds,
    closableIds: walletIds.slice(-1),
    transferIds: [String(body['id'])],
    ownerIds: [anOwner],
  };
});
afterAll(() => stopTestService(service));

describe(`generated requests (seed ${seed})`, () => {
  test(
    'have documented answers and the effects that the answers state',
    async () => {
      const connection = fc.array(requestArbitrary(subjects), { minLength: 1, maxLength: 8 });
      await fc.assert(
        fc.asyncProperty(connection, fc.boolean(), async (requests, isPipelined) => {
          expect(await faultsOf(untilLast(requests), isPipelined)).toEqual([]);
        }),
        { seed, numRuns: connectionCount },
      );
      const expected = Object.fromEntries(
        Object.entries(money).map(([currency, sum]) => [currency, sum.toFixed()]),
      );
      expect(await moneyByCurrency(service)).toEqual(expected);
      expect(service.log.filter((line) => line.includes('internal error'))).toEqual([]);
      if (process.env['TEST_CONNECTIONS'] !== undefined) process.stdout.write(`${JSON.stringify(counts)}\n`);
    },
    testTimeoutMs,
  );
});

/** The requests up to the last one of the connection, after which nothing is sent. */
function untilLast(requests: readonly GeneratedRequest[]): readonly GeneratedRequest[] {
  const last = requests.findIndex(({ isLast }) => isLast);
  return last < 0 ? requests : requests.slice(0, last + 1);
}

/** Sends requests on a connection, all at once or one by one, and returns what is wrong with the answers. */
async function faultsOf(
  requests: readonly GeneratedRequest[],
  isPipelined: boolean,
): Promise<readonly unknown[]> {
  const connection = await RawConnection.open(service.url);
  for (const [index, { method, pieces, isLast }] of requests.entries()) {
    connection.expecting(method);
    for (const piece of pieces) {
      connection.send(piece);
      await new Promise(setImmediate);
    }
    if (isLast) await endSide(connection, index + 1);
    else if (!isPipelined) await connection.settled(index + 1);
  }
  const isEnded = requests.at(-1)?.isLast === true;
  const answers = isEnded ? await connection.ended() : await connection.settled(requests.length);
  connection.close();
  const faults: unknown[] = requests.flatMap((request, index) => {
    const answer = answers[index];
    if (answer !== undefined) {
      return answerFaults(request, answer).map((fault) => ({ fault, request: requestText(request), answer }));
    }
    // A client that is told that the connection ends knows that later requests are not executed.
    const isTold = index > 0 && answers.at(-1)?.headers['connection'] === 'close';
    return isTold ? [] : [{ fault: 'no answer', request: requestText(request) }];
  });
  if (connection.rest !== '') faults.push({ fault: `an answer without end: ${connection.rest}` });
  return faults;
}

/** Ends the client's side, which refuses an incomplete request; a complete one would get no answer any more, and has its time. */
async function endSide(connection: RawConnection, count: number): Promise<void> {
  const isSettled = (): boolean => connection.answers.length >= count || connection.hasEnded;
  await vi.waitUntil(isSettled, { timeout: answerTimeMs, interval: 5 }).catch(() => undefined);
  connection.halfClose();
}

function answerFaults(request: GeneratedRequest, answer: RawAnswer): readonly string[] {
  const { operation, method, isDescribed } = request;
  const { status } = answer;
  counts[status] = (counts[status] ?? 0) + 1;
  if (operation !== undefined && status < 300 && method === 'POST') book(request, answer);
  const faults = subjects.documented.faults(answer, operation, method);
  const isRefusedByForm = [400, 405, 408, 413, 415, 417, 431].includes(status);
  return isDescribed && isRefusedByForm ? [...faults, 'what the document describes is refused'] : faults;
}

/** Counts the money of a write that was answered as successful. */
function book({ operation, json = '{}' }: GeneratedRequest, { headers, body }: RawAnswer): void {
  if (headers['idempotency-replayed'] === 'true') return;
  const wallet = JSON.parse(body) as { readonly currency: string; readonly balance: string };
  if (operation?.path === '/wallets') add(wallet.currency, new Big(wallet.balance));
  if (operation?.path.endsWith('/deposit')) add(wallet.currency, amountIn(json));
  if (operation?.path.endsWith('/withdraw')) add(wallet.currency, amountIn(json).neg());
}

function amountIn(json: string): Big {
  return new Big((JSON.parse(json, asWritten) as { readonly amount: string }).amount);
}

/** Keeps numbers as they are written. */
function asWritten(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  return typeof value === 'number' ? context?.source : value;
}

function add(currency: string, amount: Big): void {
  money[currency] = (money[currency] ?? new Big(0)).plus(amount);
}
