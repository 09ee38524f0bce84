import { Action, FrameworkAction, type Principal } from '@framework/core';
import { specification } from '@framework/testing/specification';
import { test } from 'vitest';
import * as z from 'zod';

const params = z.object({ name: z.string() });

@FrameworkAction({ params })
class GreetAction extends Action<z.infer<typeof params>, string> {
  protected async perform(_principal: Principal, { name }: z.infer<typeof params>): Promise<string> {
    return `hello ${name}`;
  }
}

test('an action greets by name', async () => {
  const spec = specification({ models: [], actions: ({ clock }) => [new GreetAction(clock)] });
  await spec.when(GreetAction, { name: 'Ada' }).thenResult('hello Ada');
});
