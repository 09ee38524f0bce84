import { runService } from '@framework/service';

import { walletService } from './wallet-service.js';

await runService(walletService);
