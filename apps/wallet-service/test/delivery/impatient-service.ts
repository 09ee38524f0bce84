import { tuneProcess } from '@framework/events/internal';

/** The service, with a limit of one call that ignores its signal for a while. */
tuneProcess({ abandonedMax: 1, abandonedForMs: 2_000 });
await import('../../src/main.js');
