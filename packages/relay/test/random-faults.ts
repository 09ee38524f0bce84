import type { EmbeddedPostgres } from '@framework/embedded-postgres';
import { seededRandom } from '@framework/testing';
import { expect } from 'vitest';

import { LogWriter, endStream, newLog, quick, startRelay } from './streamed.js';

const writerCount = 4;

/**
 * Commits and rolls back at random, in several sessions, while streams end and the broker is down now and then, and checks that two
 * relay processes publish every version of each model, for the first time in order.
 *
 * @param rounds how many transactions each session makes
 * @returns how many models have a committed version
 */
export async function relayUnderRandomFaults(server: EmbeddedPostgres, rounds: number): Promise<number> {
  const seed = Number(process.env['TEST_SEED'] ?? Date.now() % 1_000_000);
  // oxlint-disable-next-line no-console -- a failing run can be repeated with it
  console.log(`seed ${seed}`);
  const random = seededRandom(seed);
  const url = await newLog(server);
  const operator = await LogWriter.connect(url);
  // Where the log is rarely compared with the stream, more comes from the stream.
  const settings = random() < 0.5 ? quick : { cursorSaveMs: 50, leaseMs: 5_000 };
  const { broker } = await startRelay(url, {}, settings);
  // One broker for both, because they share the models.
  await startRelay(url, {}, settings, broker);
  const committed = new Map<string, number>();
  const busy = new Set<string>();
  const write = async (index: number): Promise<void> => {
    const writer = await LogWriter.connect(url);
    for (let round = 0; round < rounds; round++) {
      await writer.query('begin');
      if (random() < 0.3) await writer.query('select pg_current_xact_id()');
      if (random() < 0.2) await writer.query('select pg_sleep($1)', [random() * 0.1]);
      const models: string[] = [];
      for (let count = 0; count < 1 + random() * 4; count++) {
        const model = `r-${Math.floor(random() * 30)}`;
        if (busy.has(model)) continue;
        busy.add(model);
        models.push(model);
        await writer.write(model, (committed.get(model) ?? 0) + 1);
      }
      if (random() < 0.1) await writer.query('select pg_sleep($1)', [random() * 0.5]);
      const isKept = random() < 0.85;
      await writer.query(isKept ? 'commit' : 'rollback');
      for (const model of models) {
        if (isKept) committed.set(model, (committed.get(model) ?? 0) + 1);
        busy.delete(model);
      }
      if (index === 0 && random() < 0.05) await operator.query(endStream);
      if (index === 0 && random() < 0.03) broker.isDown = !broker.isDown;
    }
  };
  await Promise.all(Array.from({ length: writerCount }, (_unused, index) => write(index)));
  broker.isDown = false;
  for (const [model, version] of committed) {
    await expect
      .poll(() => broker.firstVersions(model), { message: `seed ${seed} ${model}` })
      .toEqual(Array.from({ length: version }, (_unused, index) => index + 1));
  }
  return committed.size;
}
