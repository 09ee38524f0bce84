import { expect, test } from 'vitest';

import { startTestService, stopTestService } from '../start-test-service.js';

const token = 'a-token-that-is-only-used-in-tests-0123456789';
/** Less than the time for which Node keeps an idle connection, far more than stopping takes. */
const stopMaxMs = 4_000;

test('the listener for operators stops at once, although somebody listens to the stream', async () => {
  const service = await startTestService({ login: 'owner', operator: { port: 0, token } });
  expect(service.consoleUrl).toBe(`${service.operatorUrl ?? ''}/console/`);
  const headers = { authorization: `Bearer ${token}` };
  const response = await fetch(`${service.operatorUrl ?? ''}/live`, { headers });
  const reader = response.body?.getReader();
  expect((await reader?.read())?.done).toBe(false);
  const begun = performance.now();
  const stopped = stopTestService(service);
  while ((await reader?.read())?.done === false);
  await stopped;
  expect(performance.now() - begun).toBeLessThan(stopMaxMs);
});

test('the console is not served where it is turned off', async () => {
  const service = await startTestService({ login: 'owner', operator: { port: 0, token, console: false } });
  expect(service.consoleUrl).toBeUndefined();
  expect((await fetch(`${service.operatorUrl ?? ''}/console/`)).status).toBe(401);
  await stopTestService(service);
});
