import { inject } from 'vitest';

declare module 'vitest' {
  interface ProvidedContext {
    readonly groupCommit: boolean;
  }
}

/** Whether the tests run with group commit now; `vitest.config.ts` lists the tests that run both without and with it. */
export const groupCommit: boolean = inject('groupCommit');
