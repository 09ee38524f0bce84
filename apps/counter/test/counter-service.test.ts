import { parseFrameworkConfig } from '@framework/core';
import { startService } from '@framework/service';
import { createTestDatabase } from '@framework/testing/postgres';
import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';

import { counterService } from '../src/counter-service.ts';

test('the counter is a service with keys, versions, problems and a document', async () => {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const configs = { 'primary-config': { 'jdbc-url': database.url } };
  const members = [{ member: 0, name: 'counter-1', configs }];
  const sharding = {
    'default-shard': { group: 0, member: 0 },
    groups: [{ group: 0, name: 'counter', members }],
  };
  const config = parseFrameworkConfig({ framework: { namespace: 'com.example', sharding } });
  const service = await startService(counterService, { config, port: 0, logger: pino({ level: 'silent' }) });
  onTestFinished(() => service.stop());
  await service.service.databases.ready();

  const post = (path: string, key: string, body?: object): Promise<Response> =>
    fetch(`${service.url}${path}`, {
      method: 'POST',
      headers: { 'idempotency-key': key, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
  const opened = await post('/counters', 'open');
  const { id } = (await opened.json()) as { readonly id: string };
  expect([opened.status, opened.headers.get('etag')]).toEqual([201, '"1"']);
  const increase = `/counters/${id}/increase`;
  expect(await (await post(increase, 'first', { by: 5 })).json()).toEqual({ id, value: 5 });
  expect(await (await post(increase, 'first', { by: 5 })).json()).toEqual({ id, value: 5 });
  expect(await (await post(increase, 'second', { by: 0 })).json()).toMatchObject({ code: 'bad-request' });
  expect(await (await post('/counters/nowhere/increase', 'third', { by: 1 })).json()).toMatchObject({
    code: 'bad-request',
  });
  const document = await (await fetch(`${service.url}/openapi.json`)).json();
  expect(document).toMatchObject({ info: { title: 'Counters' }, paths: { '/counters': {} } });
});
