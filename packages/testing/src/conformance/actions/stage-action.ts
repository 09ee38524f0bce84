import { Action, FrameworkAction, type Plan, type Principal } from '@framework/core';
import * as z from 'zod';

interface Params {
  /** Does what the test wants done within perform. */
  readonly stage: (plan: Plan) => unknown;
}

/** Stages what a test stages, for plans that no action of a domain would make. */
export class StageAction extends Action<Params, void> {
  protected async perform(_principal: Principal, { stage }: Params): Promise<void> {
    await stage(this.plan());
  }
}

// The log says nothing of the work: no JSON holds it.
FrameworkAction({
  params: z.codec(z.object({}), z.custom<Params>(), {
    decode: () => ({ stage: () => undefined }),
    encode: () => ({}),
  }),
})(StageAction);
