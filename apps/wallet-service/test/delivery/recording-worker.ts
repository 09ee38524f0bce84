import { runService } from '@framework/service';

import { composeWallets } from '../../src/composition.js';
import { walletService } from '../../src/wallet-service.js';
import { recordingHandlers } from './recording-handlers.js';

// The service, with handlers besides its own that record what they receive in the database RECORDS_URL.
await runService({
  ...walletService,
  compose: (context) => {
    const { handlers = [], ...others } = composeWallets(context);
    return { ...others, handlers: [...handlers, ...recordingHandlers(process.env['RECORDS_URL'] ?? '')] };
  },
});
