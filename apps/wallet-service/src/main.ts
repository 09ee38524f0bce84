import { runService } from './run-service.js';

// The service must survive when its standard output is closed.
process.stdout.on('error', () => undefined);
await runService(process);
