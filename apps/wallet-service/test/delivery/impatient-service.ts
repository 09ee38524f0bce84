import { tuneProcess } from '@framework/events/internal';

/** The service, in which one call that ignores its signal for a while is one too many. */
tuneProcess({ abandonedMax: 1, abandonedForMs: 2_000 });
await import('../../src/main.js');
