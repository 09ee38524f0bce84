import 'reflect-metadata';
import { ActionExecutor, ShardIdentifier, ShardedId } from '@framework/core';
import {
  type ArgumentsHost,
  Body,
  Catch,
  Controller,
  type ExceptionFilter,
  Inject,
  Module,
  type OnApplicationShutdown,
  Param,
  Post,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { IncreaseCounterAction, OpenCounterAction } from '../counter/counter-actions.ts';
import { Counter } from '../counter/counter.ts';
import { databases, executor, problemOf, ready } from './app.ts';

const principal = { name: 'reader' };

@Controller('counters')
class CounterController {
  constructor(@Inject(ActionExecutor) private readonly actions: ActionExecutor) {}

  @Post()
  async open(): Promise<{ id: string }> {
    const shard = ShardIdentifier.of(0, 0);
    const { id } = await this.actions.execute(principal, OpenCounterAction, { shard });
    return { id: id.value };
  }

  @Post(':id')
  async increase(@Param('id') text: string, @Body() { by }: { by: number }): Promise<{ value: number }> {
    const id = ShardedId.of(Counter, text);
    const { value } = await this.actions.execute(principal, IncreaseCounterAction, { id, by });
    return { value };
  }
}

interface Reply {
  status(code: number): { json(body: object): void };
}

@Catch()
class ProblemFilter implements ExceptionFilter {
  catch(error: unknown, host: ArgumentsHost): void {
    const { status, code } = problemOf(error);
    const reply = host.switchToHttp().getResponse<Reply>();
    reply.status(status).json({ code });
  }
}

@Module({
  controllers: [CounterController],
  providers: [{ provide: ActionExecutor, useValue: executor }],
})
class AppModule implements OnApplicationShutdown {
  onApplicationShutdown(): Promise<void> {
    return databases.close();
  }
}

await ready();
const app = await NestFactory.create(AppModule, { logger: ['error', 'warn'] });
app.useGlobalFilters(new ProblemFilter());
app.enableShutdownHooks();
await app.listen(Number(process.env['PORT']));
