import { expect, test } from 'vitest';

import { startError } from './start-error.js';

const settings = { configFile: undefined, host: 'desk.example', port: 8080 };

test.each([
  ['desk.example', /^The service cannot listen .*: correct PORT or HOST$/],
  [
    'metrics.example',
    /^The host metrics\.example cannot be found \(ENOTFOUND\): correct framework\.metrics\.host,/,
  ],
])('a start that does not find the host %s says who names it', (hostname, text) => {
  const error = Object.assign(new Error('no'), { code: 'ENOTFOUND', syscall: 'getaddrinfo', hostname });
  expect(startError(error, 'DESK', settings)).toMatch(text);
});
