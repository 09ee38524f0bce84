import { runService } from '@framework/service';
import { counterService } from './counter-service.ts';

await runService(counterService);
