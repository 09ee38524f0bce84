import { operatorModule } from '@framework/service';

import { walletService } from './wallet-service.js';

/** The service as the command line sees it: `framework.operator.module` names this module. */
export default operatorModule(walletService);
