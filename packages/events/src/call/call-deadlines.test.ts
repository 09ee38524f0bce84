import { expect, test, vi } from 'vitest';

import { logRestartNeed } from './call-deadlines.js';

test('the line about a restart contains the number of abandoned calls of each handler', () => {
  const write = vi.spyOn(console, 'error').mockReturnValue();
  const countByHandler = new Map([
    ['mails', 2],
    ['books', 1],
  ]);
  logRestartNeed({ abandonedCount: 3, countByHandler });
  expect(write).toHaveBeenCalledExactlyOnceWith(
    'Delivery has stopped, and this process must be restarted: 3 calls of handlers keep running, although ' +
      'their signal was aborted: mails (2), books (1)',
  );
  write.mockRestore();
});
