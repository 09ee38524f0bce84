import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * Runs work in the async context of nobody: what serves many requests must not run, nor live on, in that of the one which
 * happened to start it.
 *
 * The context is that in which this module was loaded; load it before the first request is served.
 */
export const outsideRequests: <Result>(work: () => Result) => Result = AsyncLocalStorage.snapshot();
