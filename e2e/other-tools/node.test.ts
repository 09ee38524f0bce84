import { Action, FrameworkAction, type Principal } from '@framework/core';
import { specification } from '@framework/testing/specification';
import { test } from 'node:test';
import * as z from 'zod';

const greet = z.object({ name: z.string() });
type Greet = z.infer<typeof greet>;

class GreetAction extends Action<Greet, string> {
  static readonly params = greet;
  static readonly result = z.string();
  static readonly actionName = 'greet.v1';

  protected async perform(_principal: Principal, { name }: Greet): Promise<string> {
    return `hello ${name}`;
  }
}

class PartAction extends Action<Greet, string> {
  protected async perform(_principal: Principal, { name }: Greet): Promise<string> {
    return `goodbye ${name}`;
  }
}
FrameworkAction({ params: greet, result: z.string(), name: 'part.v1' })(PartAction);

const spec = specification({
  models: [],
  actions: ({ clock }) => [new GreetAction(clock), new PartAction(clock)],
});

test('an action greets by name', async () => {
  await spec.when(GreetAction, { name: 'Ada' }).thenResult('hello Ada');
});

test('an action says goodbye by name', async () => {
  await spec.when(PartAction, { name: 'Ada' }).thenResult('goodbye Ada');
});
